-- The jobs whose results asked for a step.
-- ?1 tenant, ?2 key, ?3 at most
select j.key
from paidonce_step s
join paidonce_job j on j.tenant = s.tenant and j.id = s.job
where s.tenant = ?1 and s.key = ?2
order by j.id limit ?3
