-- J1: the first claims of keys. DO NOTHING, never DO UPDATE: that locks and rewrites
-- the row of every duplicate. Keys are inserted in order, so that no two statements wait
-- for each other. A claim whose key somebody else was first with gets no row, and one whose
-- own epoch is closed gets no id.
-- $1 tenants, $2 keys, $3 claim tokens, $4 actions, $5 input hashes, $6 inputs or nulls,
-- $7 carriers, $8 workers, $9 epochs, $10 longest runs, $11 budgets, $12 receives,
-- $13 origins or nulls, $14 most calls and $15 lifetimes or nulls
with q as materialized (
  select q.*, w.id is not null as open
  from unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::text[], $9::bigint[],
    $10::interval[], $11::bigint[], $12::int[], $13::text[], $14::int[], $15::interval[]) with ordinality
    as q(tenant, key, token, action, input_hash, input, carrier, worker, epoch, max_run, budget, receives, origin, max_calls, lifetime, item)
  left join lateral ( -- by its key, for the limit's sake
    select w.id from paidonce.worker w where w.id = q.worker and w.epoch = q.epoch and w.closed_at is null limit 1
  ) w on true
), ins as (
  insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier,
    owner, owner_epoch, claim_token, run_deadline, next_at, runs, events, budget, receives, origin, max_calls, lifetime, created_at, updated_at)
  select q.tenant, q.key, q.action, q.input_hash, q.input is not null, (c.now at time zone 'utc')::date, 'running', 1, q.carrier,
    q.worker, q.epoch, q.token, c.now + q.max_run, c.now, 1, 1, q.budget, q.receives, q.origin::jsonb, q.max_calls, q.lifetime, c.now, c.now
  from q cross join (select clock_timestamp() as now) c where q.open
  order by q.tenant, q.key
  on conflict (tenant, key) do nothing
  returning tenant, id, part_on, created_at, owner, array_position($3::uuid[], claim_token) as item
), inp as (
  insert into paidonce.input (tenant, job, part_on, body)
  select tenant, id, part_on, ($6::bytea[])[item] from ins where ($6::bytea[])[item] is not null
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, 1, part_on, created_at, '', 'running', owner, 'J1 first claim, run 1' from ins
)
select item, id from ins
union all
select item, null from q where not open
