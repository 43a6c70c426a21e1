-- Reads jobs for claims that want the verdict alone: as claim_read.sql does, without the result. To find the result's partition
-- and its row is half of what that one costs, and needed for jobs of earlier days alone: no purge takes what belongs to today.
-- The tenant is compared as there.
-- $1 tenants, $2 keys, $3 claim tokens
select q.item, j.id, j.action, j.input_hash, j.state, j.fence, j.generation, j.carrier, j.runs,
       j.open_calls, j.cancel, j.cost, j.error_class, j.error_text,
       coalesce(j.claim_token = q.token, false) as mine,
       w.id is null or coalesce(j.run_deadline <= c.now, false) as lapsed,
       coalesce(j.run_deadline - c.now, '0') as run_left,
       coalesce(least(w.lease_until, j.run_deadline) - c.now, '0') as lease_left,
       j.next_at - c.now as due_in,
       case when j.part_on < c.today then r.id else j.result_id end as result_id, null::bytea as body, null::text as schema_name, '' as rule
from unnest($1::text[], $2::text[], $3::uuid[]) with ordinality as q(tenant, key, token, item)
join paidonce.job j on j.key = q.key and j.tenant = q.tenant collate "C"
cross join (select t.now, (t.now at time zone 'utc')::date as today from (select clock_timestamp() as now) t) c
left join paidonce.worker w on w.id = j.owner and w.epoch = j.owner_epoch and w.closed_at is null
left join paidonce.result r on r.tenant = j.tenant and r.job = j.id and r.generation = j.generation
     and r.part_on = j.part_on and j.state = 'done' and j.part_on < c.today
