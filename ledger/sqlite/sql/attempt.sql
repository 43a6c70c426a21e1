-- The attempt of a gate, born sent. Nothing happens when it is there.
-- tenant, job, id, generation, number, fence, call, input key, route, provider, model, config, client
-- request id, timeout, reserve, late seen, sent at, budgets, their day
insert into paidonce_attempt (tenant, job, id, generation, n, fence, state, call_name, input_key, route, provider, model,
  config, client_request_id, timeout, reserve, late_seen, sent_at, budgets, budget_day)
values (?, ?, ?, ?, ?, ?, 'sent', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
