/**
 * Many requests on one model, which come and go at any time. They share the device step by step and the memory page by page.
 *
 * A {@link Scheduler} orders steps, a {@link Runner} runs them, and this file moves tokens between them and the callers. While the device
 * does a step, the host takes the tokens of the one before and schedules the next.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../../array/mod.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import { MegakernelFailure } from "../../graph/error.ts";
import { checkModel, checkNumber, checkOptions, type OptionKind } from "../arguments.ts";
import { SubmissionSizer, succeeded } from "../decode/submission_sizer.ts";
import { LlmError } from "../error.ts";
import { requestsOf } from "../generation/request.ts";
import { KvPool, pageBytes } from "../kv/paged.ts";
import { decodingModel, type DecodingModel, type LanguageModel } from "../models/mod.ts";
import { BATCH_OPTIONS } from "../sampling/options.ts";
import { Constraint } from "../structured/constraint.ts";
import { grammarOf } from "../structured/response_format.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { Job } from "./job.ts";
import type { EngineMetrics, EngineRequest, EngineResponse } from "./request.ts";
import { Runner, type Submitted } from "./runner.ts";
import { Scheduler } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import { rowsOf, type Step, type StepResult, tokensOf } from "./step.ts";
