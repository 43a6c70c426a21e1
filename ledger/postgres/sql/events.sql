-- $1 tenant, $2 job
select e.at, e.from_state, e.to_state, e.actor, e.reason, e.looks
from paidonce.job j
join paidonce.event e on e.tenant = j.tenant and e.job = j.id and e.part_on = j.part_on
where j.tenant = $1 and j.id = $2
order by e.n
