-- J10s: the row of a step whose key nobody has seen. Its id is the tenant's next one: whoever inserts holds the
-- only write lock.
-- ?1 tenant, ?2 key, ?3 action, ?4 input hash, ?5 now, ?6 events, ?7 origin or null
insert into paidonce_job (tenant, id, key, action, input_hash, input_kept, carrier, state, fence, runs, next_at, created_at, updated_at, events, origin)
select ?1, max(coalesce((select max(id) from paidonce_job where tenant = ?1), 0),
  coalesce((select id from paidonce_floor where tenant = ?1), 0)) + 1, ?2, ?3, ?4, 1, 'ledger', 'ready', 1, 0, ?5, ?5, ?5, ?6, ?7
returning id
