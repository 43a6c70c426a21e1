-- J20, of the jobs that purge_mark marks.
-- ?1 changed before, ?2 at most
delete from paidonce_chunk where (tenant, job) in (
  select tenant, id from paidonce_job
  where state in ('done', 'failed', 'cancelled') and purged = 0 and updated_at < ?1 order by updated_at, tenant, id limit ?2)
