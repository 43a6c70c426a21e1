-- What the attempts of a time cost, of one tenant and action or of all, in groups.
-- $1 group by, $2 tenant, $3 action, '' each for any, $4 from, $5 before
with a as (
  select case $1::text when 'action' then j.action when 'tenant' then t.tenant when 'model' then t.model
           when 'day' then to_char(t.sent_at at time zone 'utc', 'YYYY-MM-DD') else '' end as by,
         case when $1 = 'model' then t.provider else '' end as provider,
         t.state, t.cost, t.surplus, t.reserve,
         t.state = 'unknown' or t.state = 'sent' and j.state = 'unknown' as open,
         t.state = 'unknown' and exists (
           select from paidonce.attempt u
           where u.tenant = t.tenant and u.job = t.job and u.part_on = t.part_on and u.generation = t.generation
             and u.call_name = t.call_name and u.input_key = t.input_key and u.n > t.n and u.state <> 'not_sent') as replayed
  from paidonce.attempt t
  join paidonce.job j on j.tenant = t.tenant and j.id = t.job
  where ($2 = '' or t.tenant = $2) and ($3 = '' or j.action = $3) and t.sent_at >= $4 and t.sent_at < $5
)
select by, provider,
  count(*) filter (where state <> 'not_sent') as calls,
  coalesce(sum(cost), 0)::bigint as spent,
  count(cost) as priced,
  count(*) filter (where cost is null and state = 'received') as unpriced,
  count(*) filter (where cost is null and state = 'failed') as failed,
  count(*) filter (where surplus) as surplus,
  count(*) filter (where replayed) as replayed,
  coalesce(sum(cost) filter (where surplus or replayed), 0)::bigint as wasted,
  count(*) filter (where cost is null and (surplus or replayed)) as wasted_unpriced,
  count(*) filter (where open) as unknown,
  coalesce(sum(reserve) filter (where open), 0)::bigint as reserved
from a group by by, provider
