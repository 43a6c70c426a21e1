-- The jobs of a time that asked each model, of one tenant and action or of all.
-- ?1 tenant, ?2 action, '' each for any, ?3 from, ?4 before
select coalesce(m.model, ''), coalesce(m.provider, ''), count(*)
from paidonce_job j
left join (select distinct tenant, job, model, provider from paidonce_attempt where state <> 'not_sent') m on m.tenant = j.tenant and m.job = j.id
where (?1 = '' or j.tenant = ?1) and (?2 = '' or j.action = ?2) and j.created_at >= ?3 and j.created_at < ?4
group by 1, 2
