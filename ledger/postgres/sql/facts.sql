-- Locks jobs by their ids, in order, and reads all that guards look at. The clock is read once
-- a row's lock is held, and used for everything that the transaction writes of it.
-- $1 tenants, $2 jobs
with j as materialized (
  select q.item, b.*
  from unnest($1::text[], $2::bigint[]) with ordinality as q(tenant, job, item)
  join paidonce.job b on b.tenant = q.tenant and b.id = q.job
  order by b.tenant, b.id for update of b
)
select j.item, j.id, j.state, j.fence, j.open_calls, j.open_until, j.cancel, j.input_kept, j.carrier, j.owner, j.run_deadline,
       j.next_at, j.unknown_at, j.panics, j.replays, j.cost, j.reserved, j.budget,
       j.attempts - coalesce(j.uncounted, 0) as calls, coalesce(j.max_calls, 0) as max_calls,
       coalesce(j.lifetime, '0') as lifetime, coalesce(j.began_at, j.created_at) as began_at, clock_timestamp() as now
from j
