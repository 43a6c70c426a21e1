-- J19f: the run learns of it at its next renewal or gate.
-- $1 tenant, $2 job, $3 now, $4 actor, $5 reason
with up as (
  update paidonce.job b set cancel = true, events = b.events + 1, updated_at = $3
  where b.tenant = $1 and b.id = $2 and not b.cancel
  returning b.tenant, b.id, b.part_on, b.events, b.state
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, $3, state, state, $4, $5 from up
