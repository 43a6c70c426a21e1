-- The messages of jobs of which all messages are due: of those of the oldest, whatever tenant they are of.
-- ?1 now, ?2 of at most so many
select o.tenant, o.job, o.result, o.n, o.action, o.body, o.origin
from paidonce_outbox o
where (o.tenant, o.job) in (
    select tenant, job from (select tenant, job from paidonce_outbox where next_at <= ?1 order by next_at limit ?2))
  and not exists (select 1 from paidonce_outbox w where w.tenant = o.tenant and w.job = o.job and w.next_at > ?1)
order by o.tenant, o.job, o.generation, o.n
