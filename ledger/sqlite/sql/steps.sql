-- The steps that a job's results asked for.
-- ?1 tenant, ?2 job
select s.key, s.action, s.generation, coalesce(j.state, ''), coalesce(j.action <> s.action or j.input_hash <> s.input_hash, 0),
       coalesce((
         select a.object_id from paidonce_attempt a
         where a.tenant = j.tenant and a.job = j.id and a.generation = j.generation and a.state = 'received' and a.surplus = 0
         order by a.captured limit 1), '')
from paidonce_step s
left join paidonce_job j on j.tenant = s.tenant and j.key = s.key
where s.tenant = ?1 and s.job = ?2
order by s.generation, s.n
