-- The avoided deliveries of some days, of one tenant and action or of all, in groups.
-- ?1 group by, ?2 tenant, ?3 action, '' each for any, ?4 from, ?5 before
select case ?1 when 'action' then action when 'tenant' then tenant
         when 'day' then strftime('%Y-%m-%d', day / 1000000, 'unixepoch') else '' end as name,
       cause, sum(n), sum(saved), sum(unpriced)
from paidonce_dup_count
where (?2 = '' or tenant = ?2) and (?3 = '' or action = ?3) and day >= ?4 and day < ?5
group by 1, 2
