-- outbox_take
-- The messages of jobs of which all messages are due: of those of the oldest, whatever tenant they are of. Who locks the first of
-- a job's has them all; two that locked them one by one would share them, and then their order is nobody's.
-- What somebody else holds locked he is taking, or dropping.
-- $1 of at most so many, $2 how long they are the caller's
with due as materialized (
  select tenant, job from paidonce.outbox where next_at <= clock_timestamp() order by next_at limit $1
), head as materialized (
  select o.tenant, o.job
  from (select distinct tenant, job from due) j
  join paidonce.outbox o on o.tenant = j.tenant and o.job = j.job
  where o.next_at <= clock_timestamp()
    and not exists (select from paidonce.outbox w where w.tenant = o.tenant and w.job = o.job and w.next_at > clock_timestamp())
    and not exists (select from paidonce.outbox p where p.tenant = o.tenant and p.job = o.job and (p.result, p.n) < (o.result, o.n))
  order by o.tenant, o.job
  for update of o skip locked
), own as materialized (
  select o.tenant, o.job, o.result, o.n
  from head h
  join paidonce.outbox o on o.tenant = h.tenant and o.job = h.job
  where o.next_at <= clock_timestamp()
  order by o.tenant, o.job, o.result, o.n
  for update of o skip locked
), up as (
  update paidonce.outbox o set next_at = clock_timestamp() + $2::interval
  from own where o.tenant = own.tenant and o.job = own.job and o.result = own.result and o.n = own.n
  returning o.tenant, o.job, o.result, o.n, o.generation, o.action, o.origin, o.body
)
select tenant, job, result, n, action, origin, body from up order by tenant, job, generation, n
