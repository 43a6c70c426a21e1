-- J20 on the rows, after their bodies.
-- ?1 changed before, ?2 at most
update paidonce_job set purged = 1 where (tenant, id) in (
  select tenant, id from paidonce_job
  where state in ('done', 'failed', 'cancelled') and purged = 0 and updated_at < ?1 order by updated_at, tenant, id limit ?2)
