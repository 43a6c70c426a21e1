-- What is known of calls: the first captured answer of each, its attempts, and its job's
-- count of late answers, all of one snapshot. An answer that is captured after
-- it under an older fence raises the count, and the gate refuses the old one. The answer itself, which
-- few looks find, is read after it (answer.sql): it never changes.
-- $1 tenants, $2 jobs, $3 call names, $4 input keys
select q.item, j.fence, j.late, j.panics, s.attempts, s.open, s.id, s.route
from unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) with ordinality as q(tenant, job, call_name, input_key, item)
join paidonce.job j on j.tenant = q.tenant and j.id = q.job
cross join lateral (
  select count(*) as attempts, count(*) filter (where t.state = 'sent') as open,
    (array_agg(t.id order by t.captured) filter (where t.state = 'received'))[1] as id,
    (array_agg(t.route order by t.captured) filter (where t.state = 'received'))[1] as route
  from paidonce.attempt t
  where t.tenant = j.tenant and t.job = j.id and t.part_on = j.part_on and t.generation = j.generation
    and t.call_name = q.call_name and t.input_key = q.input_key
) s
