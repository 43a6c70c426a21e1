-- ?1 days before, ?2 at most
delete from paidonce_dup_count where (tenant, day, action, cause) in (
  select tenant, day, action, cause from paidonce_dup_count where day < ?1 order by day, tenant, action, cause limit ?2)
