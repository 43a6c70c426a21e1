-- J17 and J19: a job ends without a result. Its open attempts are closed as unknown;
-- their reserve stays until there is evidence.
-- $1 tenant, $2 job, $3 now, $4 state, $5 class, $6 text, $7 actor, $8 reason
with att as (
  update paidonce.attempt a set state = 'unknown', ended_at = $3
  from paidonce.job j
  where j.tenant = $1 and j.id = $2 and a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on and a.state = 'sent'
), j as (
  select state as was, tenant, id from paidonce.job where tenant = $1 and id = $2
), up as (
  update paidonce.job b set
    state = $4, open_calls = 0, open_until = null, unknown_at = null, owner = null, owner_epoch = null,
    error_class = coalesce($5, b.error_class), error_text = coalesce($6, b.error_text), events = b.events + 1, updated_at = $3
  where b.tenant = $1 and b.id = $2
  returning b.tenant, b.id, b.part_on, b.events
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select up.tenant, up.id, up.events, up.part_on, $3, j.was, $4, $7, $8
from up join j on j.tenant = up.tenant and j.id = up.id
