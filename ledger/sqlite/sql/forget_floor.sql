-- Their ids are not used again, and reports of their time say that they are gone.
-- ?1 changed before, ?2 at most
insert into paidonce_floor (tenant, id, until)
select tenant, max(id), max(updated_at) from paidonce_job where (tenant, id) in (
  select tenant, id from paidonce_job
  where state in ('done', 'failed', 'cancelled') and purged = 1 and updated_at < ?1 order by updated_at, tenant, id limit ?2)
group by tenant
on conflict (tenant) do update set id = max(id, excluded.id), until = max(until, excluded.until)
