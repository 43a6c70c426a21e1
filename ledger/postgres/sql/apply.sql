-- J10a, the last statement of the user's transaction: no lock on the job is held while the user's own statements run. Its row is
-- locked by the statement before. That the answer is captured, and its call's first, stays so; applicable.sql asked for it before the
-- user's statements.
-- $1 tenant, $2 job, $3 attempt, $4 fence
with n as materialized (
  select j.tenant, j.id, j.part_on, j.state, j.fence, j.owner, a.n, a.state as attempt, a.applied_at is not null as applied, clock_timestamp() as now
  from paidonce.job j
  left join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on and a.id = $3
  where j.tenant = $1 and j.id = $2
), d as materialized (
  select n.*, fence = $4 and state = 'running' and not applied as done from n
), att as (
  update paidonce.attempt a set applied_at = d.now
  from d where d.done and a.tenant = d.tenant and a.job = d.id and a.part_on = d.part_on and a.id = $3
), up as (
  update paidonce.job b set events = b.events + 1, updated_at = d.now
  from d where d.done and b.tenant = d.tenant and b.id = d.id
  returning b.tenant, b.id, b.part_on, b.events, b.updated_at, d.owner, d.n
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, updated_at, 'running', 'running', owner, format('J10a apply an answer, attempt %s', n) from up
)
select state, fence, n, attempt, applied, done, true as first_in from d
