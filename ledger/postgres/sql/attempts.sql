-- $1 tenant, $2 job, $3 state, or '' for any
select a.id, a.generation, a.n, a.fence, a.state, a.call_name, a.input_key, a.route, a.provider, a.model, a.config,
       a.client_request_id, a.timeout, a.reserve, a.late_seen, a.sent_at, a.ended_at, a.class, a.seen_by, a.who, a.reason,
       a.status, a.provider_request_id, a.object_id, a.first_byte, a.tokens_in, a.tokens_cached, a.tokens_out,
       a.cost, a.cost_source, a.surplus, a.applied_at, a.captured,
       exists (select from paidonce.response r where r.tenant = a.tenant and r.job = a.job and r.attempt = a.id and r.part_on = a.part_on) as answer_kept
from paidonce.job j
join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on
where j.tenant = $1 and j.id = $2 and ($3 = '' or a.state = $3)
order by a.n
