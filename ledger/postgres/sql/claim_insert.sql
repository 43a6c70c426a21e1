-- J1: the first claim of a key. DO NOTHING, never DO UPDATE: that locks and rewrites
-- the row of every duplicate. The id is null when somebody else was first, or when
-- the asker's own epoch is closed.
-- $1 tenant, $2 key, $3 claim token, $4 action, $5 input hash, $6 input or null,
-- $7 carrier, $8 worker, $9 epoch, $10 longest run, $11 budget, $12 receives,
-- $13 origin or null
with w as materialized (
  select exists (select from paidonce.worker where id = $8 and epoch = $9 and closed_at is null) as open
), ins as (
  insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier,
    owner, owner_epoch, claim_token, run_deadline, next_at, runs, events, budget, receives, origin, created_at, updated_at)
  select $1, $2, $4, $5, $6::bytea is not null, (c.now at time zone 'utc')::date, 'running', 1, $7,
    $8, $9, $3, c.now + $10::interval, c.now, 1, 1, $11, $12, $13, c.now, c.now
  from (select clock_timestamp() as now) c, w where w.open
  on conflict (tenant, key) do nothing
  returning tenant, id, part_on, created_at
), inp as (
  insert into paidonce.input (tenant, job, part_on, body)
  select tenant, id, part_on, $6 from ins where $6 is not null
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, 1, part_on, created_at, '', 'running', $8, 'J1 first claim, run 1' from ins
)
select (select id from ins) as id, w.open from w
