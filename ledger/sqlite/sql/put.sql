-- A message of a result, into the outbox, with the origin of its job.
-- ?1 tenant, ?2 job, ?3 result, ?4 place, ?5 generation, ?6 action, ?7 due at, ?8 body
insert into paidonce_outbox (tenant, job, result, n, generation, action, origin, next_at, body)
select ?1, ?2, ?3, ?4, ?5, ?6, (select origin from paidonce_job where tenant = ?1 and id = ?2), ?7, ?8
