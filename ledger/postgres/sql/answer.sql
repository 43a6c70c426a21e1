-- $1 tenant, $2 job, $3 attempt
select r.codec, r.body
from paidonce.job j
join paidonce.response r on r.tenant = j.tenant and r.job = j.id and r.part_on = j.part_on
where j.tenant = $1 and j.id = $2 and r.attempt = $3
