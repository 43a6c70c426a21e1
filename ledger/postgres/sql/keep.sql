-- An adopted job goes back until its next look. The line of this look says how it ended, if
-- nothing came between.
-- $1 tenant, $2 job, $3 now, $4 due at, $5 actor, $6 reason
with look as (
  update paidonce.event e set at = $3, actor = $5, reason = $6
  from paidonce.job j
  where j.tenant = $1 and j.id = $2 and e.tenant = j.tenant and e.job = j.id and e.n = j.events and e.part_on = j.part_on and e.looks > 0
  returning e.n
), up as (
  update paidonce.job b set owner = null, owner_epoch = null, next_at = $4,
    events = b.events + case when exists (select from look) then 0 else 1 end, updated_at = $3
  where b.tenant = $1 and b.id = $2
  returning b.tenant, b.id, b.part_on, b.events
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, $3, 'unknown', 'unknown', $5, $6 from up
where not exists (select from look)
