-- The steps that a job's results asked for, and the jobs whose results asked for it. Keys are looked up
-- as in claim_read.sql.
-- $1 tenant, $2 job, $3 its key, $4 askers at most
select true as asked, s.key, s.action, s.generation, s.n::bigint as place, coalesce(j.state, '') as state,
       coalesce(j.action <> s.action or j.input_hash <> s.input_hash, false) as other,
       coalesce((
         select a.object_id from paidonce.attempt a
         where a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on and a.generation = j.generation
           and a.state = 'received' and not a.surplus
         order by a.captured limit 1), '') as remote_id
from paidonce.step s
left join paidonce.job j on j.key = s.key and j.tenant = s.tenant collate "C"
where s.tenant = $1 and s.job = $2
union all
select false, f.key, '', 0, f.id, '', false, ''
from (
  select j.key, j.id
  from paidonce.step s
  join paidonce.job j on j.tenant = s.tenant and j.id = s.job
  where s.key = $3 and s.tenant = $1 collate "C"
  order by j.id limit $4
) f
order by 1 desc, 4, 5
