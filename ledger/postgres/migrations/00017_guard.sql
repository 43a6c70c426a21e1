-- +goose Up

set local lock_timeout = '2s';

-- Most rules of a job's row, as they were, in one place. A CHECK is kept as a text that the server reads and plans anew in each
-- statement that writes a row: 24 of them were more than a quarter of what it did for a lone job. What a trigger's function says is
-- planned once for each connection. Those that keep a call from being paid twice stay CHECKs, which nothing switches off: job_open_calls_check,
-- unknown_has_open_calls, only_open_has_open_calls, running_has_owner.
-- +goose StatementBegin
create function paidonce.guard_job() returns trigger language plpgsql as $$
declare
  broken text := case
    when not (new.tenant <> '') then 'job_tenant_check'
    when not (new.key <> '') then 'job_key_check'
    when not (octet_length(new.input_hash) = 32) then 'job_input_hash_check'
    when not (new.state in ('ready', 'running', 'unknown', 'done', 'failed', 'cancelled')) then 'job_state_check'
    when not (new.generation > 0) then 'job_generation_check'
    when not (new.fence > 0) then 'job_fence_check'
    when not (new.carrier in ('broker', 'ledger')) then 'job_carrier_check'
    when not (new.runs >= 0) then 'job_runs_check'
    when not (new.panics >= 0) then 'job_panics_check'
    when not (new.replays >= 0) then 'job_replays_check'
    when not (new.reserved >= 0) then 'job_reserved_check'
    when not (new.budget >= 0) then 'job_budget_check'
    when not (new.state = 'running' or (new.claim_token is null and new.run_deadline is null)) then 'only_running_has_token'
    when not ((new.owner is null) = (new.owner_epoch is null)) then 'owner_has_epoch'
    when not (new.owner is null or new.state in ('running', 'unknown')) then 'only_open_has_owner'
    when not ((new.open_calls > 0) = (new.open_until is not null)) then 'open_calls_have_horizon'
    when not ((new.state = 'unknown') = (new.unknown_at is not null)) then 'unknown_has_since'
    when not (new.state <> 'done' or (new.result_id is not null and new.done_at is not null)) then 'done_has_result'
    when not (new.state <> 'failed' or new.error_class is not null) then 'failed_has_error'
    when not (new.carrier = 'broker' or new.input_kept) then 'ledger_carries_input'
    when tg_op = 'INSERT' then null
    when old.state = 'done' and new.generation = old.generation and (new.state <> 'done' or new.result_id is distinct from old.result_id) then 'done_is_final'
    when new.fence < old.fence or new.generation < old.generation or new.part_on < old.part_on then 'fence_grows'
  end;
begin
  if broken is not null then
    raise exception 'job % breaks the rule "%"', new.id, broken
      using errcode = 'check_violation', schema = 'paidonce', table = 'job', constraint = broken;
  end if;
  return new;
end $$;
-- +goose StatementEnd

create trigger guard before insert or update on paidonce.job for each row execute function paidonce.guard_job();

alter table paidonce.job
  drop constraint job_tenant_check, drop constraint job_key_check, drop constraint job_input_hash_check, drop constraint job_state_check,
  drop constraint job_generation_check, drop constraint job_fence_check, drop constraint job_carrier_check, drop constraint job_runs_check,
  drop constraint job_panics_check, drop constraint job_replays_check, drop constraint job_reserved_check, drop constraint job_budget_check,
  drop constraint only_running_has_token, drop constraint owner_has_epoch, drop constraint only_open_has_owner,
  drop constraint open_calls_have_horizon, drop constraint unknown_has_since, drop constraint done_has_result,
  drop constraint failed_has_error, drop constraint ledger_carries_input;
drop trigger done_is_final on paidonce.job;
drop trigger fence_grows on paidonce.job;
