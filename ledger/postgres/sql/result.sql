-- The results of a job's generations, the present one last.
-- $1 tenant, $2 job
select r.generation, r.id, r.schema_name, r.body
from paidonce.job j
join paidonce.result r on r.tenant = j.tenant and r.job = j.id and r.part_on = j.part_on
where j.tenant = $1 and j.id = $2
order by r.generation
