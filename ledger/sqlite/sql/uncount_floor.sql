-- Reports of the days whose counts uncount deletes say that they are gone.
-- ?1 days before, ?2 at most
insert into paidonce_floor (tenant, id, until)
select tenant, 0, max(day) + 86400000000 - 1 from paidonce_dup_count where (tenant, day, action, cause) in (
  select tenant, day, action, cause from paidonce_dup_count where day < ?1 order by day, tenant, action, cause limit ?2)
group by tenant
on conflict (tenant) do update set until = max(until, excluded.until)
