-- Avoided deliveries of some days, tenants, actions and causes, each once: one batch of a worker, whose
-- latest it remembers. Rows are written in the order of their keys, so that two workers never wait for each other.
-- $1 worker, $2 batch, $3 tenants, $4 days, $5 actions, $6 causes, $7 counts, $8 saved, $9 unpriced
with w as (
  update paidonce.worker set counted = $2 where id = $1 and counted is distinct from $2 returning id
), up as (
  insert into paidonce.dup_count as d (tenant, day, action, cause, n, saved, unpriced)
  select q.tenant, q.day, q.action, q.cause, q.n, q.saved, q.unpriced
  from w cross join unnest($3::text[], $4::date[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[])
    as q(tenant, day, action, cause, n, saved, unpriced)
  order by q.tenant, q.day, q.action, q.cause
  on conflict (tenant, day, action, cause) do update
    set n = d.n + excluded.n, saved = d.saved + excluded.saved, unpriced = d.unpriced + excluded.unpriced
)
select exists (select from paidonce.worker where id = $1) as known
