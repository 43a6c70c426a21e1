select count(*) from paidonce_outbox
