-- The first captured answer of a call in the job's generation.
-- ?1 tenant, ?2 job, ?3 call name, ?4 input key
select a.id, a.route, r.codec, r.body
from paidonce_job j
join paidonce_attempt a on a.tenant = j.tenant and a.job = j.id and a.generation = j.generation
join paidonce_response r on r.tenant = a.tenant and r.job = a.job and r.attempt = a.id
where j.tenant = ?1 and j.id = ?2 and a.call_name = ?3 and a.input_key = ?4 and a.state = 'received'
order by a.captured limit 1
