-- J10, the last statement of a result's transaction: no lock on the job is held while
-- the user's own statements run. It locks the job rows, in the order of their keys, and none is twice
-- among them. Schema, body and attempts used are taken by their place, once. Answers that were not used are
-- marked by a function, in a snapshot of its own from after the lock: most results use all that they have.
-- $1 tenants, $2 jobs, $3 fences, $4 result ids, $5 schemas, $6 bodies, $7 attempts used, each once, as array literals
with d as materialized (
  select l.*, fence = held and state = 'running' and open_calls = 0 as done, clock_timestamp() as now
  from (
    select j.tenant, j.id, j.part_on, j.state, j.generation, j.fence, j.open_calls, j.attempts, j.owner, j.events, j.result_id as has, q.held, q.result, q.item
    from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[]) with ordinality as q(tenant, job, held, result, item)
    join paidonce.job j on j.tenant = q.tenant and j.id = q.job
    order by j.tenant, j.id for update of j
  ) l
), up as (
  update paidonce.job b set
    state = 'done', result_id = d.result, done_at = d.now, owner = null, owner_epoch = null, claim_token = null,
    run_deadline = null, error_class = null, error_text = null, events = b.events + 1, updated_at = d.now
  from d where d.done and b.tenant = d.tenant and b.id = d.id
), res as (
  insert into paidonce.result (tenant, job, generation, part_on, id, schema_name, body)
  select tenant, id, generation, part_on, result, ($5::text[])[item], ($6::bytea[])[item] from d where done
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events + 1, part_on, now, 'running', 'done', owner, 'J10 complete' from d where done
)
select item, state, fence, open_calls, coalesce(has = result, false) as mine, done,
  case when done and attempts > cardinality((($7::text[])[item])::uuid[])
    then paidonce.mark_surplus(tenant, id, part_on, generation, (($7::text[])[item])::uuid[]) else 0 end as surplus
from d
