-- J10s: the steps of a result, in its transaction and after J10. Keys are inserted in order, so that no two
-- statements wait for each other; a key that is there is kept as it is. The link is then that of this generation.
-- $1 tenant, $2 job, $3 result id, $4 keys, $5 actions, $6 input hashes, $7 inputs, $8 origins or nulls, $9 whether
-- nobody knows that it was this transaction which made J10, and none before it
with j as materialized (
  select b.tenant, b.id, b.key, b.generation, b.done_at as now, e.actor
  from paidonce.job b
  join paidonce.event e on e.tenant = b.tenant and e.job = b.id and e.n = b.events and e.part_on = b.part_on
  where b.tenant = $1 and b.id = $2 and b.state = 'done' and b.result_id = $3
    and (not $9::boolean or b.xmin = pg_current_xact_id()::xid)
), q as materialized (
  select j.tenant, j.id as job, j.generation, j.now, s.*
  from j cross join unnest($4::text[], $5::text[], $6::bytea[], $8::text[]) with ordinality as s(key, action, input_hash, origin, n)
), ins as (
  insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at, runs, events, origin, created_at, updated_at)
  select tenant, key, action, input_hash, true, (now at time zone 'utc')::date, 'ready', 1, 'ledger', now, 0, 1, origin::jsonb, now, now
  from q order by tenant, key
  on conflict (tenant, key) do nothing
  returning tenant, id, part_on, created_at, array_position($4::text[], key) as n
), inp as (
  insert into paidonce.input (tenant, job, part_on, body) select tenant, id, part_on, ($7::bytea[])[n] from ins
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select ins.tenant, ins.id, 1, ins.part_on, ins.created_at, '', 'ready', j.actor, 'J10s step of ' || j.key from ins cross join j
)
insert into paidonce.step as l (tenant, job, key, generation, n, action, input_hash)
select tenant, job, key, generation, n, action, input_hash from q
on conflict (tenant, job, key) do update set
  generation = excluded.generation, n = excluded.n, action = excluded.action, input_hash = excluded.input_hash
