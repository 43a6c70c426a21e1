-- What is known of one call: its first captured answer, its attempts, and the job's
-- count of late answers, all of one snapshot. An answer that is captured after
-- it under an older fence raises the count, and the gate refuses the old one.
-- $1 tenant, $2 job, $3 call name, $4 input key
select j.fence, j.late, j.panics, s.attempts, s.open, a.id, a.route, a.codec, a.body
from paidonce.job j
cross join lateral (
  select count(*) as attempts, count(*) filter (where t.state = 'sent') as open
  from paidonce.attempt t
  where t.tenant = j.tenant and t.job = j.id and t.part_on = j.part_on and t.generation = j.generation
    and t.call_name = $3 and t.input_key = $4
) s
left join lateral (
  select t.id, t.route, r.codec, r.body
  from paidonce.attempt t
  join paidonce.response r on r.tenant = t.tenant and r.job = t.job and r.attempt = t.id and r.part_on = t.part_on
  where t.tenant = j.tenant and t.job = j.id and t.part_on = j.part_on and t.generation = j.generation
    and t.call_name = $3 and t.input_key = $4 and t.state = 'received'
  order by t.captured limit 1
) a on s.attempts > 0
where j.tenant = $1 and j.id = $2
