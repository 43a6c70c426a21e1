-- Until when an open attempt may land, and what the open ones hold back.
-- tenant, job
select max(sent_at + timeout), coalesce(sum(reserve), 0) from paidonce_attempt where tenant = ? and job = ? and state = 'sent'
