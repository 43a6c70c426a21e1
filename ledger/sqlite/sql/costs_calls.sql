-- What the attempts of a time cost, of one tenant and action or of all, in groups.
-- ?1 group by, ?2 tenant, ?3 action, '' each for any, ?4 from, ?5 before
select case ?1 when 'action' then j.action when 'tenant' then a.tenant when 'model' then a.model
         when 'day' then strftime('%Y-%m-%d', a.sent_at / 1000000, 'unixepoch') else '' end as name,
       case ?1 when 'model' then a.provider else '' end as provider,
       sum(a.state <> 'not_sent'),
       sum(coalesce(a.cost, 0)),
       sum(a.cost is not null),
       sum(a.cost is null and a.state = 'received'),
       sum(a.cost is null and a.state = 'failed'),
       sum(a.surplus),
       sum(a.replayed),
       sum(case when a.surplus or a.replayed then coalesce(a.cost, 0) else 0 end),
       sum(a.cost is null and (a.surplus or a.replayed)),
       sum(a.state = 'unknown' or a.state = 'sent' and j.state = 'unknown'),
       sum(case when a.state = 'unknown' or a.state = 'sent' and j.state = 'unknown' then a.reserve else 0 end)
from (
  select a.*, a.state = 'unknown' and exists (
      select 1 from paidonce_attempt b
      where b.tenant = a.tenant and b.job = a.job and b.generation = a.generation and b.call_name = a.call_name and b.input_key = a.input_key
        and b.n > a.n and b.state <> 'not_sent') as replayed
  from paidonce_attempt a
) a
join paidonce_job j on j.tenant = a.tenant and j.id = a.job
where (?2 = '' or a.tenant = ?2) and (?3 = '' or j.action = ?3) and a.sent_at >= ?4 and a.sent_at < ?5
group by 1, 2
