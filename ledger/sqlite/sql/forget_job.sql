-- J20k on the rows, after all that belongs to them.
-- ?1 changed before, ?2 at most
delete from paidonce_job where (tenant, id) in (
  select tenant, id from paidonce_job
  where state in ('done', 'failed', 'cancelled') and purged = 1 and updated_at < ?1 order by updated_at, tenant, id limit ?2)
