-- ?1 days before, ?2 at most
delete from paidonce_budget where (tenant, action, day) in (
  select tenant, action, day from paidonce_budget where day < ?1 order by day, tenant, action limit ?2)
