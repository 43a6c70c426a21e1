-- J1s: jobs that a program submits, in a transaction of its own or in one statement. Keys are inserted in order, so that no two
-- statements wait for each other; a key that is there is kept as it is.
-- $1 tenants, $2 keys, $3 actions, $4 input hashes, $5 inputs, $6 origins or nulls, $7 who submits each
with q as materialized (
  select q.*, c.now
  from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $6::text[]) with ordinality as q(tenant, key, action, input_hash, origin, item)
  cross join (select clock_timestamp() as now) c
), ins as (
  insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at, runs, events, origin, created_at, updated_at)
  select tenant, key, action, input_hash, true, (now at time zone 'utc')::date, 'ready', 1, 'ledger', now, 0, 1, origin::jsonb, now, now
  from q order by tenant, key
  on conflict (tenant, key) do nothing
  returning tenant, id, key, part_on, created_at
), made as (
  select ins.*, q.item from ins join q on q.tenant = ins.tenant and q.key = ins.key
), inp as (
  insert into paidonce.input (tenant, job, part_on, body) select tenant, id, part_on, ($5::bytea[])[item] from made
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, 1, part_on, created_at, '', 'ready', ($7::text[])[item], 'J1s submit' from made
)
select item from made
