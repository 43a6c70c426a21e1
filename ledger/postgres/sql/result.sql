-- $1 tenant, $2 job
select r.id, r.schema_name, r.body
from paidonce.job j
join paidonce.result r on r.tenant = j.tenant and r.job = j.id and r.generation = j.generation and r.part_on = j.part_on
where j.tenant = $1 and j.id = $2
