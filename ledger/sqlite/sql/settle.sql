-- What came back of an attempt. What is not said leaves what is known.
-- state, ended at, captured, surplus, class, kind of actor, who, reason, status, provider request id, object id,
-- first byte, tokens in, cached, out, cost, cost source, tenant, job, id
update paidonce_attempt set
  state = ?, ended_at = ?, captured = ?, surplus = ?,
  class = coalesce(nullif(?, ''), class), seen_by = ?,
  who = coalesce(nullif(?, ''), who), reason = coalesce(nullif(?, ''), reason),
  status = coalesce(nullif(?, 0), status),
  provider_request_id = coalesce(nullif(?, ''), provider_request_id),
  object_id = coalesce(nullif(?, ''), object_id),
  first_byte = coalesce(?, first_byte),
  tokens_in = coalesce(?, tokens_in), tokens_cached = coalesce(?, tokens_cached), tokens_out = coalesce(?, tokens_out),
  cost = coalesce(?, cost), cost_source = coalesce(nullif(?, ''), cost_source)
where tenant = ? and job = ? and id = ?
