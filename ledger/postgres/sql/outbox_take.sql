-- The messages of jobs of which all messages are due: of those of the oldest, whatever tenant they are of. What somebody else
-- holds locked he is taking, or dropping.
-- $1 of at most so many, $2 how long they are the caller's
with due as materialized (
  select tenant, job from paidonce.outbox where next_at <= clock_timestamp() order by next_at limit $1
), own as materialized (
  select o.tenant, o.job, o.result, o.n
  from (select distinct tenant, job from due) j
  join paidonce.outbox o on o.tenant = j.tenant and o.job = j.job
  where o.next_at <= clock_timestamp()
    and not exists (select from paidonce.outbox w where w.tenant = o.tenant and w.job = o.job and w.next_at > clock_timestamp())
  order by o.tenant, o.job, o.result, o.n
  for update of o skip locked
), up as (
  update paidonce.outbox o set next_at = clock_timestamp() + $2::interval
  from own where o.tenant = own.tenant and o.job = own.job and o.result = own.result and o.n = own.n
  returning o.tenant, o.job, o.result, o.n, o.generation, o.action, o.origin, o.body
)
select tenant, job, result, n, action, origin, body from up order by tenant, job, generation, n
