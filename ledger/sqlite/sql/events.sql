-- tenant, job
select at, from_state, to_state, actor, reason, looks from paidonce_event where tenant = ? and job = ? order by n
