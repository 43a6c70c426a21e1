-- The jobs of a time that asked each model, of one tenant and action or of all.
-- $1 tenant, $2 action, '' each for any, $3 from, $4 before
select coalesce(a.model, '') as by, coalesce(a.provider, '') as provider, count(distinct (j.tenant, j.id)) as jobs
from paidonce.job j
left join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.state <> 'not_sent'
where ($1 = '' or j.tenant = $1) and ($2 = '' or j.action = $2) and j.created_at >= $3 and j.created_at < $4
group by 1, 2
