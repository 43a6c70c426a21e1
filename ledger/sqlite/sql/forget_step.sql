-- J20k, of the jobs that forget_job deletes: what they asked for, not the steps themselves.
-- ?1 changed before, ?2 at most
delete from paidonce_step where (tenant, job) in (
  select tenant, id from paidonce_job
  where state in ('done', 'failed', 'cancelled') and purged = 1 and updated_at < ?1 order by updated_at, tenant, id limit ?2)
