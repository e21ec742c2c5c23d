/* Streams of events as the providers send them, written for the tests: every kind of event, and what comes of it. */
#pragma once
#include "backend/format.h"
#include "backend/parse/sse.h"

#define EV(name, json) "event: " name "\ndata: " json "\n\n"
#define DATA(json)     "data: " json "\n\n"

struct stream {
	const char *name;
	const struct format *format;
	const char *in;
	const char *text, *thinking, *stop, *replay; /* replay: NULL none */
	const char *calls;			     /* "id name input;" each */
	int64_t in_tokens, out_tokens, cached;
};

static const char anthropic_all[] = EV(
	"message_start",
	"{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\","
	"\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":"
	"20,\"cache_read_input_tokens\":70,\"output_tokens\":1}}}")
	EV("ping", "{\"type\": \"ping\"}") ": a comment\r\n" EV(
		"content_block_start",
		"{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
		"\"thinking\":\"\",\"signature\":\"\"}}") EV("content_block_delta",
							     "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
							     "\"type\":\"thinking_delta\","
							     "\"thinking\":\"Let me \\\"see\\\" \\u00e9\\n\"}}")
		EV("content_block_delta",
		   "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
		   "\"thinking\":\"more\"}}") EV("content_block_delta",
						 "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
						 "\"signature_delta\","
						 "\"signature\":\"EqRk/+==\"}}") EV("content_block_stop",
										    "{\"type\":\"content_block_stop\","
										    "\"index\":0}")
			EV("content_block_start",
			   "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":"
			   "\"redacted_thinking\",\"data\":\"Zm9v\"}}") EV("content_block_stop",
									   "{\"type\":\"content_block_stop\",\"index\":"
									   "1}") EV("content_block_start",
										    "{\"type\":\"content_block_start\","
										    "\"index\":2,\"content_block\":{"
										    "\"type\":\"text\","
										    "\"text\":\"\"}}")
				EV("content_block_delta",
				   "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\","
				   "\"text\":"
				   "\"I look \xF0\x9F\x90\xA6\"}}") EV("content_block_delta",
								       "{\"type\":\"content_block_delta\",\"index\":2,"
								       "\"delta\":{\"type\":\"citations_delta\","
								       "\"citation\":{}}}") EV("content_block_delta",
											       "{\"type\":\"content_"
											       "block_delta\","
											       "\"index\":2,\"delta\":{"
											       "\"type\":\"text_"
											       "delta\",\"text\":"
											       "\" now.\"}}")
					EV("content_block_stop", "{\"type\":\"content_block_stop\",\"index\":2}") EV(
						"content_block_start",
						"{\"type\":\"content_block_start\",\"index\":3,"
						"\"content_block\":{\"type\":\"tool_use\","
						"\"id\":\"toolu_1\",\"name\":\"bash\",\"input\":"
						"{}}}") EV("content_block_delta", "{\"type\":\"content_block_delta\","
										  "\"index\":3,\"delta\":{\"type\":"
										  "\"input_json_delta\","
										  "\"partial_json\":\"\"}}")
						EV("content_block_delta",
						   "{\"type\":\"content_block_delta\",\"index\":"
						   "3,\"delta\":{\"type\":\"input_json_delta\","
						   "\"partial_json\":\"{\\\"command\\\": \\\"rm "
						   "-rf \"}}") EV("content_block_delta", "{\"type\":\"content_block_"
											 "delta\",\"index\":3,"
											 "\"delta\":{\"type\":\"input_"
											 "json_delta\","
											 "\"partial_json\":\"/tmp/"
											 "x\\\"}\"}}")
							EV("content_block_stop",
							   "{\"type\":\"content_block_stop\","
							   "\"index\":3}") EV("content_block_start",
									      "{\"type\":\"content_block_start\","
									      "\"index\":4,"
									      "\"content_block\":{\"type\":\"tool_"
									      "use\","
									      "\"id\":\"toolu_2\",\"name\":\"read\","
									      "\"input\":{}}}") EV("content_block_stop",
												   "{\"type\":"
												   "\"content_block_"
												   "stop\",\"index\":"
												   "4}")
								EV("content_block_start",
								   "{\"type\":\"content_block_start\",\"index\":5,"
								   "\"content_block\":{\"type\":\"of_tomorrow\","
								   "\"x\":1}}") EV("content_block_delta",
										   "{\"type\":\"content_block_"
										   "delta\",\"index\":5,\"delta\":"
										   "{\"type\":\"of_tomorrow_"
										   "delta\"}}")
									EV("content_block_stop",
									   "{\"type\":\"content_block_stop\",\"index\":"
									   "5}") EV("news", "{\"type\":\"news\",\"of\":"
											    "\"tomorrow\"}")
										EV("message_delta",
										   "{\"type\":\"message_delta\","
										   "\"delta\":{\"stop_reason\":\"tool_"
										   "use\",\"stop_sequence\":null},"
										   "\"usage\":{\"input_tokens\":null,"
										   "\"cache_read_input_tokens\":null,"
										   "\"output_tokens\":42}}")
											EV("message_stop",
											   "{\"type\":\"message_"
											   "stop\"}");

static const char openai_all[] = DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
				      "\"content\":\"\"},\"finish_reason\":"
				      "null}]}") DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_"
						      "content\":\"hm\",\"reasoning\":\"hm\"}}]}")
	DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"m\"}}]}") DATA(
		"{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Look\"},\"finish_reason\":null}]}")
		DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ing "
		     "\xC3\xA9\"},\"finish_reason\":null}]}") DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":"
								   "{\"tool_calls\":[{\"index\":0,\"id\":"
								   "\"call_a\",\"type\":"
								   "\"function\",\"function\":{\"name\":\"bash\","
								   "\"arguments\":\"\"}}]}}]}")
			DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
			     "\"function\":{\"arguments\":"
			     "\"{\\\"command\\\":\\\"echo \"}}]}}]}")
				DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
				     "\"function\":{\"arguments\":"
				     "\"hi\\\"}\"}},{\"index\":1,\"id\":\"call_b\",\"function\":{\"name\":\"read\","
				     "\"arguments\":\"{\\\"path\\\":"
				     "\\\"a\\\"}\"}}]}}]}") DATA("{\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{}"
								 ",\"finish_reason\":\"tool_calls\"}]}")
					DATA("{\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,"
					     "\"completion_tokens\":7,\"total_tokens\":107,"
					     "\"prompt_tokens_details\":{\"cached_tokens\":40}}}") DATA("[DONE]");

static const char responses_all[] = EV(
	"response.created",
	"{\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":"
	"\"in_progress\",\"usage\":null}}") EV("response.queued", "{\"type\":\"response.queued\",\"response\":{}}")
	EV("response.in_progress", "{\"type\":\"response.in_progress\",\"response\":{}}") EV(
		"response.output_item.added",
		"{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":"
		"\"reasoning\",\"id\":\"rs_1\",\"summary\":[]}}") EV("response.reasoning_summary_part.added",
								     "{\"type\":\"response.reasoning_summary_part."
								     "added\",\"output_index\":0}")
		EV("response.reasoning_summary_text.delta",
		   "{\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,"
		   "\"summary_index\":0,\"delta\":\"thinking\"}") EV("response.reasoning_summary_text.done",
								     "{\"type\":\"response.reasoning_summary_text."
								     "done\",\"output_index\":0,"
								     "\"text\":\"thinking\"}")
			EV("response.output_item.done",
			   "{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":"
			   "\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":"
			   "\"thinking\"}],\"encrypted_content\":\"gAAA/b+=\"}}") EV("response.output_item.added",
										     "{\"type\":\"response.output_item."
										     "added\",\"output_index\":1,"
										     "\"item\":{\"type\":"
										     "\"message\",\"id\":\"m_1\","
										     "\"role\":\"assistant\","
										     "\"content\":[]}}")
				EV("response.content_part.added",
				   "{\"type\":\"response.content_part.added\",\"output_"
				   "index\":1}") EV("response.output_text.delta",
						    "{\"type\":\"response.output_text.delta\",\"output_index\":1,"
						    "\"content_index\":"
						    "0,"
						    "\"delta\":\"I \"}") EV("response.output_text.delta",
									    "{\"type\":\"response.output_text.delta\","
									    "\"output_"
									    "index\":1,\"content_index\":0,"
									    "\"delta\":\"look \xE2\x82\xAC\"}")
					EV("response.output_text.done",
					   "{\"type\":\"response.output_text.done\",\"output_index\":1,\"text\":\"I "
					   "look "
					   "\xE2\x82\xAC\"}") EV("response.content_part.done",
								 "{\"type\":\"response.content_part.done\",\"output_"
								 "index\":1}") EV("response.output_item.done",
										  "{\"type\":\"response.output_item."
										  "done\",\"output_index\":1,\"item\":{"
										  "\"type\":"
										  "\"message\",\"content\":[{\"type\":"
										  "\"output_text\",\"text\":\"I look "
										  "\xE2\x82\xAC\"}]}}")
						EV("response.output_item.added",
						   "{\"type\":\"response.output_item.added\",\"output_index\":2,"
						   "\"item\":{\"type\":"
						   "\"function_call\",\"id\":\"fc_1\",\"call_id\":\"call_x\",\"name\":"
						   "\"bash\","
						   "\"arguments\":\"\"}}") EV("response.function_call_arguments.delta",
									      "{\"type\":\"response.function_call_"
									      "arguments.delta\",\"output_index\":2,"
									      "\"delta\":\"{\\\"command\\\":\"}")
							EV("response.function_call_arguments.delta",
							   "{\"type\":\"response.function_call_arguments.delta\","
							   "\"output_index\":2,"
							   "\"delta\":\"\\\"ls\\\"}\"}") EV("response.function_call_"
											    "arguments.done",
											    "{\"type\":\"response."
											    "function_call_arguments."
											    "done\",\"output_index\":2,"
											    "\"arguments\":\"{"
											    "\\\"command\\\":"
											    "\\\"ls\\\"}\"}")
								EV("response.output_item.done",
								   "{\"type\":\"response.output_item.done\",\"output_"
								   "index\":2,\"item\":{\"type\":"
								   "\"function_call\",\"id\":\"fc_1\",\"call_id\":"
								   "\"call_x\",\"name\":\"bash\","
								   "\"arguments\":\"{\\\"command\\\":\\\"ls\\\"}\","
								   "\"status\":\"completed\"}}")
									EV("response.output_item.done",
									   "{\"type\":\"response.output_item.done\","
									   "\"output_index\":3,\"item\":{\"type\":"
									   "\"function_call\",\"call_id\":\"call_y\","
									   "\"name\":\"read\",\"arguments\":"
									   "\"{\\\"path\\\":\\\"a\\\"}\"}}")
										EV("response.tomorrow",
										   "{\"type\":\"response.tomorrow\","
										   "\"output_index\":3}")
											EV("response.completed",
											   "{\"type\":\"response."
											   "completed\",\"response\":{"
											   "\"status\":\"completed\","
											   "\"usage\":{"
											   "\"input_tokens\":100,"
											   "\"output_tokens\":7,"
											   "\"input_tokens_details\":{"
											   "\"cached_tokens\":40}}}}");

/* ---- what comes rarely ---- */

static const char anthropic_rare[] = EV(
	"message_start",
	"{\"type\":\"message_start\",\"message\":{\"id\":\"msg_2\","
	"\"role\":\"assistant\",\"content\":[],\"stop_reason\":null,"
	"\"usage\":{\"input_tokens\":10,\"cache_creation_input_"
	"tokens\":null,\"cache_read_input_tokens\":null,\"output_"
	"tokens\":1}}}") EV("content_block_start",
			    "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
			    "\"thinking\":\"a \"}}") EV("content_block_delta",
							"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
							"\"type\":\"thinking_delta\",\"thinking\":\"guess\"}}")
	EV("content_block_stop", "{\"type\":\"content_block_stop\",\"index\":0}") EV(
		"content_block_start", "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":"
				       "\"server_tool_use\",\"id\":\"srv_1\",\"name\":\"web_search\",\"input\":{}}}")
		EV("content_block_delta", "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_"
					  "json_delta\",\"partial_json\":\"{\\\"query\\\":\\\"x\\\"}\"}}")
			EV("content_block_stop", "{\"type\":\"content_block_stop\",\"index\":1}") EV(
				"content_block_start",
				"{\"type\":\"content_block_start\","
				"\"index\":2,\"content_block\":{\"type\":"
				"\"web_search_tool_result\",\"tool_use_"
				"id\":\"srv_1\",\"content\":[]}}") EV("content_block_stop",
								      "{\"type\":\"content_block_stop\",\"index\":2}")
				EV("content_block_start",
				   "{\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\","
				   "\"text\":\"So: \"}}") EV("ping",
							     "{\"type\":\"ping\"}") EV("content_block_delta",
										       "{\"type\":\"content_block_"
										       "delta\",\"index\":3,\"delta\":{"
										       "\"type\":\"text_delta\","
										       "\"text\":\"\\u00e9\"}}")
					EV("content_block_delta",
					   "{\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_"
					   "delta\",\"text\":\"\"}}") EV("content_block_stop",
									 "{\"type\":\"content_block_stop\",\"index\":"
									 "3}") EV("content_block_start",
										  "{\"type\":\"content_block_start\","
										  "\"index\":4,\"content_block\":{"
										  "\"type\":"
										  "\"tool_use\",\"id\":\"toolu_9\","
										  "\"name\":\"bash\",\"input\":{"
										  "\"command\":"
										  "\"ls\"}}}")
						EV("content_block_stop",
						   "{\"type\":\"content_block_stop\",\"index\":"
						   "4}") EV("message_delta",
							    "{\"type\":\"message_delta\",\"delta\":{\"stop_"
							    "reason\":null},\"usage\":{\"output_tokens\":5}}")
							EV("message_delta",
							   "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
							   "\"tool_use\",\"stop_sequence\":null},\"usage\":{\"input_"
							   "tokens\":12,\"output_tokens\":9,\"output_tokens_details\":{"
							   "\"thinking_tokens\":3}}}")
								EV("message_stop", "{\"type\":\"message_stop\"}");

static const char openai_rare[] = ": PROCESSING\n\n" DATA(
	"{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null},"
	"\"finish_reason\":null}],\"obfuscation\":\"x1\"}")
	DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_text\":\"May "
	     "I?\",\"reasoning_details\":[]},\"logprobs\":null}]}")
		DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Sorry. "
		     "\",\"annotations\":[],\"audio\":null}}]}") DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,"
								      "\"delta\":{\"refusal\":\"No, \"}}]}")
			DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"never \\u00e9.\"}}]}")
				DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":null}]}") DATA(
					"{\"id\":\"c2\",\"choices\":null,\"x_groq\":{\"id\":\"r\"}}")
					DATA("{\"id\":\"c2\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":"
					     "\"stop\",\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":4,"
					     "\"cached_tokens\":20}}]}") ": PROCESSING\n\n" DATA("[DONE]");

static const char responses_rare[] = ": keep-alive\n\n" EV(
	"response.created", "{\"type\":\"response.created\","
			    "\"sequence_number\":1,\"response\":{"
			    "\"id\":\"r\"}}") EV("response.in_progress",
						 "{\"type\":\"response.in_progress\",\"sequence_number\":1,"
						 "\"response\":{}}") EV("response.output_item.added",
									"{\"type\":\"response.output_"
									"item.added\",\"sequence_"
									"number\":1,\"output_index\":0,"
									"\"item\":{\"type\":"
									"\"reasoning\",\"id\":\"rs\","
									"\"summary\":[],\"content\":[]}"
									"}") EV("response.reasoning_text.delta",
										"{\"type\":\"response.reasoning_text."
										"delta\",\"sequence_number\":1,"
										"\"output_index\":0,\"content_index\":"
										"0,\"delta\":\"Hm\"}")
	EV("response.reasoning_text.done",
	   "{\"type\":\"response.reasoning_text.done\",\"sequence_number\":1,\"output_index\":0,\"content_index\":"
	   "0,\"text\":\"Hm\"}") EV("response.reasoning_summary_part.done",
				    "{\"type\":\"response.reasoning_summary_part.done\",\"sequence_number\":1,"
				    "\"output_index\":0,\"summary_index\":0,\"part\":{\"type\":\"summary_text\","
				    "\"text\":\"\"}}") EV("response.output_item.done",
							  "{\"type\":\"response.output_item.done\",\"sequence_"
							  "number\":1,\"output_index\":0,\"item\":{\"type\":"
							  "\"reasoning\",\"id\":\"rs\",\"summary\":[],\"content\":"
							  "[{\"type\":\"reasoning_text\",\"text\":\"Hm\"}]}}")
		EV("response.output_item.added",
		   "{\"type\":\"response.output_item.added\",\"sequence_number\":1,"
		   "\"output_index\":1,\"item\":{\"type\":\"web_search_call\",\"id\":"
		   "\"ws\",\"status\":\"in_progress\"}}") EV("response.web_search_call.searching",
							     "{\"type\":\"response.web_search_call.searching\","
							     "\"sequence_number\":1,\"output_index\":1,"
							     "\"item_id\":\"ws\"}") EV("response.web_search_call."
										       "completed",
										       "{\"type\":\"response.web_"
										       "search_call.completed\","
										       "\"sequence_"
										       "number\":1,\"output_index\":1,"
										       "\"item_id\":\"ws\"}")
			EV("response.output_item.done",
			   "{\"type\":\"response.output_item.done\",\"sequence_number\":1,"
			   "\"output_index\":1,\"item\":{\"type\":\"web_search_call\","
			   "\"id\":\"ws\",\"status\":\"completed\"}}") EV("response.output_item.added",
									  "{\"type\":\"response.output_item.added\","
									  "\"sequence_number\":1,\"output_index\":2,"
									  "\"item\":{\"type\":\"custom_tool_call\","
									  "\"id\":\"ct\",\"call_id\":\"call_c\","
									  "\"name\":"
									  "\"bash\",\"input\":\"\"}}")
				EV("response.custom_tool_call_input.delta",
				   "{\"type\":\"response.custom_tool_call_input.delta\","
				   "\"sequence_number\":1,\"output_index\":2,\"item_id\":"
				   "\"ct\",\"delta\":\"rm -rf /\"}") EV("response.custom_"
									"tool_call_input."
									"done",
									"{\"type\":"
									"\"response."
									"custom_tool_call_"
									"input.done\","
									"\"sequence_"
									"number\":1,"
									"\"output_index\":"
									"2,\"item_id\":"
									"\"ct\",\"input\":"
									"\"rm -rf /\"}") EV("response.output_item.done",
											    "{\"type\":\"response."
											    "output_item.done\","
											    "\"sequence_"
											    "number\":1,\"output_"
											    "index\":2,\"item\":{"
											    "\"type\":"
											    "\"custom_tool_call\","
											    "\"id\":\"ct\",\"call_id\":"
											    "\"call_"
											    "c\",\"name\":\"bash\","
											    "\"input\":\"rm -rf /\"}}")
					EV("response.output_item.done",
					   "{\"type\":\"response.output_item.done\",\"sequence_number\":1,\"output_"
					   "index\":3,\"item\":{\"type\":\"compaction\",\"id\":\"cm\",\"encrypted_"
					   "content\":\"gAAA\"}}") EV("response.output_item.added",
								      "{\"type\":\"response.output_item.added\","
								      "\"sequence_number\":1,\"output_index\":4,"
								      "\"item\":{"
								      "\"type\":\"message\",\"id\":\"m\",\"role\":"
								      "\"assistant\",\"content\":[]}}")
						EV("response.content_part.added",
						   "{\"type\":\"response.content_part.added\",\"sequence_number\":1,"
						   "\"output_"
						   "index\":4,\"content_index\":0,\"part\":{\"type\":\"output_text\","
						   "\"text\":"
						   "\"\"}}") EV("response.output_text.delta",
								"{\"type\":\"response.output_text.delta\",\"sequence_"
								"number\":"
								"1,\"output_index\":4,\"content_index\":0,\"delta\":"
								"\"Well. "
								"\"}") EV("response.output_text.annotation.added",
									  "{\"type\":\"response.output_text.annotation."
									  "added\",\"sequence_"
									  "number\":1,\"output_index\":4,\"content_"
									  "index\":0,\"annotation\":{}"
									  "}") EV("response.output_text.done",
										  "{\"type\":\"response.output_text."
										  "done\",\"sequence_"
										  "number\":1,\"output_index\":4,"
										  "\"content_index\":0,\"text\":"
										  "\"Well. \"}") EV("response.refusal."
												    "delta",
												    "{\"type\":"
												    "\"response."
												    "refusal.delta\","
												    "\"sequence_"
												    "number\":1,"
												    "\"output_index\":"
												    "4,"
												    "\"content_index\":"
												    "1,\"delta\":\"No, "
												    "\"}")
							EV("response.refusal.delta",
							   "{\"type\":\"response.refusal.delta\",\"sequence_number\":1,"
							   "\"output_index\":4,\"content_index\":1,\"delta\":\"never "
							   "\\u20ac.\"}") EV("response.refusal.done",
									     "{\"type\":\"response.refusal.done\","
									     "\"sequence_number\":1,\"output_index\":4,"
									     "\"content_index\":1,\"refusal\":\"No, "
									     "never \\u20ac.\"}")
								EV("response.content_part.done",
								   "{\"type\":\"response.content_part.done\","
								   "\"sequence_number\":1,\"output_index\":4,\"content_"
								   "index\":1,\"part\":{\"type\":\"refusal\","
								   "\"refusal\":\"No, never \\u20ac.\"}}")
									EV("response.output_item.done",
									   "{\"type\":\"response.output_item.done\","
									   "\"sequence_number\":1,\"output_index\":4,"
									   "\"item\":{\"type\":\"message\",\"content\":"
									   "[{\"type\":\"output_text\",\"text\":\"Well."
									   " \"},{\"type\":\"refusal\",\"refusal\":"
									   "\"No, never \\u20ac.\"}]}}")
										EV("response.completed",
										   "{\"type\":\"response.completed\","
										   "\"sequence_number\":1,\"response\":"
										   "{\"status\":\"completed\","
										   "\"usage\":{\"input_tokens\":30,"
										   "\"output_tokens\":4,\"input_tokens_"
										   "details\":{\"cached_tokens\":20},"
										   "\"output_tokens_details\":{"
										   "\"reasoning_tokens\":1}}}}");

#define ANTHROPIC_REPLAY                                                                                               \
	"{\"api\":\"anthropic\",\"blocks\":[ {\"raw\":{\"type\":\"thinking\",\"thinking\":\"Let me \\\"see\\\" "       \
	"\xC3\xA9\\nmore\",\"signature\":\"EqRk/+==\"}},{\"raw\":{\"type\":\"redacted_thinking\",\"data\":\"Zm9v\"}"   \
	"},{\"skip\":0,\"text\":16},{\"call\":true},{\"call\":true}]}"
#define RESPONSES_REPLAY                                                                                               \
	"{\"api\":\"responses\",\"blocks\":[ {\"raw\":{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":" \
	"\"summary_text\",\"text\":\"thinking\"}],\"encrypted_content\":\"gAAA/b+=\"}},{\"skip\":0,\"text\":10},{"     \
	"\"call\":true},{\"call\":true}]}"

static const struct stream streams[] = {
	{"anthropic", &format_anthropic, anthropic_all, "I look \xF0\x9F\x90\xA6 now.", "Let me \"see\" \xC3\xA9\nmore",
	 "tool_use", ANTHROPIC_REPLAY, "toolu_1 bash {\"command\": \"rm -rf /tmp/x\"};toolu_2 read {};", 100, 42, 70},
	{"openai", &format_openai, openai_all, "Looking \xC3\xA9", "hmm", "tool_use", NULL,
	 "call_5_1 bash {\"command\":\"echo hi\"};call_5_2 read {\"path\":\"a\"};", 100, 7, 40},
	{"responses", &format_responses, responses_all, "I look \xE2\x82\xAC", "thinking", "tool_use", RESPONSES_REPLAY,
	 "call_x bash {\"command\":\"ls\"};call_y read {\"path\":\"a\"};", 100, 7, 40},
	{"anthropic, rare", &format_anthropic, anthropic_rare, "So: \xC3\xA9", "a guess", "tool_use", NULL,
	 "toolu_9 bash {\"command\":\"ls\"};", 12, 9, 0},
	{"openai, rare", &format_openai, openai_rare, "Sorry. No, never \xC3\xA9.", "May I?", "refusal", NULL, "", 30,
	 4, 20},
	{"responses, rare", &format_responses, responses_rare, "Well. No, never \xE2\x82\xAC.", "Hm", "refusal", NULL,
	 "", 30, 4, 20},
};

/* ---- reading one ---- */

struct heard {
	struct answer a;
	struct model_reply reply;
	struct model_fault fault;
	struct model_request q;
	struct err err;
	struct buf streamed;
	const struct format *format;
	int rc;
};

static void hear_text(void *arg, const char *p, size_t n)
{
	buf_add(arg, p, n);
}

static int hear_event(void *arg, const char *event, const char *data, size_t n, struct err *err)
{
	struct heard *h = arg;
	int rc = h->format->event(&h->a, event, data, n, err);
	return rc ? rc : answer_bounds(&h->a, err);
}

/* n bytes in pieces, then the end. */
static void hear(struct heard *h, const struct format *f, const char *p, size_t n, size_t piece, bool clean)
{
	struct sse s;
	*h = (struct heard){.format = f};
	h->q = (struct model_request){.model = "m", .n = 5, .text = hear_text, .arg = &h->streamed};
	h->a = (struct answer){.q = &h->q, .reply = &h->reply, .fault = &h->fault};
	sse_init(&s, SSE_MAX, hear_event, h);
	for (size_t at = 0; at < n && !h->rc; at += piece)
		h->rc = sse_feed(&s, p + at, piece < n - at ? piece : n - at, &h->err);
	if (!h->rc)
		h->rc = f->end(&h->a, clean, &h->err);
	sse_release(&s);
}

static void heard_release(struct heard *h)
{
	answer_release(&h->a);
	model_reply_release(&h->reply);
	buf_release(&h->streamed);
}
