-- J10, the last statement of a result's transaction: no lock on the job is held while
-- the user's own statements run. The job rows are locked by the statement before, and none
-- is twice among them. Schema, body and attempts used are taken by their place, once.
-- $1 tenants, $2 jobs, $3 fences, $4 result ids, $5 schemas, $6 bodies, $7 attempts used, as array literals
with d as materialized (
  select q.tenant, j.id, j.part_on, j.state, j.generation, j.fence, j.open_calls, j.attempts, j.owner, j.events, j.result_id as has, q.result, q.item,
    j.fence = q.held and j.state = 'running' and j.open_calls = 0 as done, clock_timestamp() as now
  from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[]) with ordinality as q(tenant, job, held, result, item)
  join paidonce.job j on j.tenant = q.tenant and j.id = q.job
), up as (
  update paidonce.job b set
    state = 'done', result_id = d.result, done_at = d.now, owner = null, owner_epoch = null, claim_token = null,
    run_deadline = null, error_class = null, error_text = null, events = b.events + 1, updated_at = d.now
  from d where d.done and b.tenant = d.tenant and b.id = d.id
), res as (
  insert into paidonce.result (tenant, job, generation, part_on, id, schema_name, body)
  select tenant, id, generation, part_on, result, ($5::text[])[item], ($6::bytea[])[item] from d where done
), sur as (
  update paidonce.attempt a set surplus = true
  from d
  where d.done and d.attempts > 0 and a.tenant = d.tenant and a.job = d.id and a.part_on = d.part_on
    and a.generation = d.generation and a.state = 'received' and not a.surplus and a.id <> all (($7::text[])[d.item]::uuid[])
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events + 1, part_on, now, 'running', 'done', owner, 'J10 complete' from d where done
)
select item, state, fence, open_calls, coalesce(has = result, false) as mine, done from d
