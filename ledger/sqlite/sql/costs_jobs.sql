-- The jobs of a time, of one tenant and action or of all, in groups.
-- ?1 group by, ?2 tenant, ?3 action, '' each for any, ?4 from, ?5 before
select case ?1 when 'action' then action when 'tenant' then tenant
         when 'day' then strftime('%Y-%m-%d', created_at / 1000000, 'unixepoch') else '' end as name,
       '' as provider, count(*)
from paidonce_job
where (?2 = '' or tenant = ?2) and (?3 = '' or action = ?3) and created_at >= ?4 and created_at < ?5
group by 1
