-- The jobs of a time, of one tenant and action or of all, in groups.
-- $1 group by, $2 tenant, $3 action, '' each for any, $4 from, $5 before
select case $1::text when 'action' then action when 'tenant' then tenant
         when 'day' then to_char(created_at at time zone 'utc', 'YYYY-MM-DD') else '' end as by,
       '' as provider, count(*) as jobs
from paidonce.job
where ($2 = '' or tenant = $2) and ($3 = '' or action = $3) and created_at >= $4 and created_at < $5
group by 1
