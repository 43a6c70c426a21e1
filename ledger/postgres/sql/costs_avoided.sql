-- The avoided deliveries of some days, of one tenant and action or of all, in groups.
-- $1 group by, $2 tenant, $3 action, '' each for any, $4 from, $5 before
select case $1::text when 'action' then action when 'tenant' then tenant
         when 'day' then to_char(day, 'YYYY-MM-DD') else '' end as by,
       cause, sum(n)::bigint as n, sum(saved)::bigint as saved, sum(unpriced)::bigint as unpriced
from paidonce.dup_count
where ($2 = '' or tenant = $2) and ($3 = '' or action = $3) and day >= ($4::timestamptz at time zone 'utc')::date and day < ($5::timestamptz at time zone 'utc')::date
group by 1, 2
