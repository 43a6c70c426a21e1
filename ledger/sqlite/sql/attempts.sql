-- ?1 tenant, ?2 job, ?3 state, or '' for any
select id, generation, n, fence, state, call_name, input_key, route, provider, model, config, client_request_id, timeout,
       reserve, late_seen, sent_at, ended_at, class, seen_by, who, reason, status, provider_request_id, object_id,
       first_byte, tokens_in, tokens_cached, tokens_out, cost, cost_source, surplus, applied_at, captured,
       exists (select 1 from paidonce_response r where r.tenant = a.tenant and r.job = a.job and r.attempt = a.id)
from paidonce_attempt a
where tenant = ?1 and job = ?2 and (?3 = '' or state = ?3)
order by n
