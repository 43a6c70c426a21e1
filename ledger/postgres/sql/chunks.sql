-- $1 tenant, $2 job, $3 hash
select c.body
from paidonce.job j
join paidonce.chunk c on c.tenant = j.tenant and c.job = j.id and c.part_on = j.part_on
where j.tenant = $1 and j.id = $2 and c.hash = $3
order by c.n
